/* SPDX-License-Identifier: BSD-2-Clause */
/* The misses that may begin a resolution, in virtual time. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "check.h"
#include "pump/tables/resolution.h"

enum { SECOND_MS = 1000, UDP = IPPROTO_UDP, SCAN_PER_S = 5000 };

static const struct ipu_hash_seed seed = {
    {0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93}};
static struct ipu_resolution resolution;
static uint64_t now_ms;
static uint32_t next_host;

static void begin(uint32_t parts)
{
    CHECK_EQ(ipu_resolution_init(&resolution, parts, &seed), 0);
    now_ms = 1000000;
    next_host = 0;
}

static void end(void)
{
    ipu_resolution_free(&resolution);
}

static struct in6_addr host(uint32_t number)
{
    struct in6_addr ip = {.s6_addr = {[10] = 0xff, [11] = 0xff, [12] = 10}};
    ip.s6_addr[13] = (uint8_t)(number >> 16);
    ip.s6_addr[14] = (uint8_t)(number >> 8);
    ip.s6_addr[15] = (uint8_t)number;
    return ip;
}

/* Returns an address that nobody has asked for. */
static struct in6_addr fresh(void)
{
    return host(++next_host);
}

/* A program with a socket sends to a port; without a port it is ping(8) with an identifier. */
static struct ipu_resolution_flow program(uint16_t socket, uint16_t port)
{
    uint8_t ip[28] = {0x45, [3] = 28, [9] = port > 0 ? UDP : IPPROTO_ICMP, [12] = 10, [15] = 200};
    uint8_t *to = ip + 20;
    if (port == 0) {
        to[0] = 8;
        to += 4;
    } else {
        to[2] = (uint8_t)(port >> 8);
        to[3] = (uint8_t)port;
    }
    to[0] = port == 0 ? (uint8_t)(socket >> 8) : (uint8_t)(socket >> 8);
    to[1] = (uint8_t)socket;
    return ipu_resolution_flow_of(&resolution, ip, sizeof ip);
}

static enum ipu_resolution_verdict ask(struct in6_addr ip, struct ipu_resolution_flow flow)
{
    return ipu_resolution_judge(&resolution, &ip, flow, false, now_ms);
}

/* Asks for `per_s` fresh addresses a second, for so long; returns how many may be resolved. */
static int scan(struct ipu_resolution_flow flow, int per_s, int for_ms)
{
    int resolved = 0;
    for (int ms = 0; ms < for_ms; ms++, now_ms++)
        for (int i = 0; i < per_s / SECOND_MS; i++)
            resolved += ask(fresh(), flow) == IPU_RESOLVE;
    return resolved;
}

static void a_scan_gets_a_third_at_once_and_then_its_share(void)
{
    begin(1);
    int at_once = scan(program(4000, 9), SCAN_PER_S, 200);
    CHECK(at_once >= IPU_RESOLUTIONS / 3 && at_once < IPU_RESOLUTIONS / 2);
    scan(program(4000, 9), SCAN_PER_S, 5 * SECOND_MS);
    int later = scan(program(4000, 9), SCAN_PER_S, 10 * SECOND_MS);
    CHECK(later > 9 * IPU_RESOLUTION_SHARE_PER_S && later < 11 * IPU_RESOLUTION_SHARE_PER_S);
    CHECK(scan(program(4000, 9), 50 * SECOND_MS, SECOND_MS) < 2 * IPU_RESOLUTION_SHARE_PER_S);
    end();
}

static void the_first_packet_of_another_program_passes_beside_a_scan(void)
{
    begin(1);
    for (uint16_t second = 0; second < 60; second++) {
        scan(program(4000, 9), SCAN_PER_S, SECOND_MS);
        CHECK_EQ(ask(fresh(), program((uint16_t)(5000 + second), 443)), IPU_RESOLVE);
        CHECK_EQ(ask(fresh(), program((uint16_t)(5000 + second), 9)), IPU_RESOLVE); /* same port */
        CHECK_EQ(ask(fresh(), program((uint16_t)(5000 + second), 0)), IPU_RESOLVE);
    }
    end();
}

/* A scanner with a socket for each address hides its program, and not the kind of its packets. */
static void a_scan_from_many_sockets_leaves_room_to_other_kinds(void)
{
    begin(1);
    for (int second = 0; second < 20; second++) {
        int resolved = 0;
        for (int ms = 0; ms < SECOND_MS; ms++, now_ms++)
            for (int i = 0; i < SCAN_PER_S / SECOND_MS; i++)
                resolved += ask(fresh(), program((uint16_t)next_host, 80)) == IPU_RESOLVE;
        CHECK(second < 10 || resolved < 2 * IPU_RESOLUTION_SHARE_PER_S);
        CHECK_EQ(ask(fresh(), program(4000, 443)), IPU_RESOLVE);
        CHECK_EQ(ask(fresh(), program(4001, 0)), IPU_RESOLVE);
    }
    end();
}

static struct ipu_resolution_flow echo(uint8_t type, uint16_t identifier, size_t len)
{
    uint8_t ip[256] = {0x45, [3] = (uint8_t)len, [9] = IPPROTO_ICMP, [12] = 10, [15] = 200};
    ip[20] = type;
    ip[24] = (uint8_t)(identifier >> 8);
    ip[25] = (uint8_t)identifier;
    return ipu_resolution_flow_of(&resolution, ip, len);
}

/* Returns how many of a second's packets pass: each with an identifier, and so many lengths. */
static int pass_in_a_second(uint8_t type, size_t lengths)
{
    int passed = 0;
    for (int ms = 0; ms < SECOND_MS; ms++, now_ms++)
        for (int i = 0; i < SCAN_PER_S / SECOND_MS; i++)
            passed += ask(fresh(), echo(type, (uint16_t)next_host, 28 + next_host % lengths)) ==
                      IPU_RESOLVE;
    return passed;
}

/* A scanner of pings, as nmap is, hides its program; its requests have a length of their own. */
static void a_ping_passes_beside_a_scan_of_pings(void)
{
    begin(1);
    for (int second = 0; second < 20; second++) {
        (void)pass_in_a_second(8, 1);
        CHECK_EQ(ask(fresh(), echo(8, 4000, 84)), IPU_RESOLVE);
    }
    end();
}

/* Invented hosts choose the length and the identifier of what our host answers. */
static void answers_of_all_lengths_share_one_place(void)
{
    begin(1);
    for (int second = 0; second < 20; second++) {
        int passed = pass_in_a_second(0, 200);
        CHECK(second < 10 || passed < 2 * IPU_RESOLUTION_SHARE_PER_S);
        CHECK_EQ(ask(fresh(), program(4000, 443)), IPU_RESOLVE);
    }
    end();
}

/* Its second packet does not wait for the scanner's first ones, even where all else is the same. */
static void a_program_that_repeats_after_a_second_passes_beside_a_scan(void)
{
    begin(1);
    int passed = 0;
    scan(program(4000, 80), SCAN_PER_S, 10 * SECOND_MS);
    for (int second = 0; second < 50; second++) {
        struct in6_addr ip = fresh();
        CHECK(ask(ip, program(4000, 80)) != IPU_RESOLVE_ERROR);
        scan(program(4000, 80), SCAN_PER_S, SECOND_MS);
        passed += ask(ip, program(4000, 80)) == IPU_RESOLVE;
    }
    CHECK(passed >= 40); /* a later refusal with the same index may replace one */
    end();
}

static void a_scanner_that_repeats_at_once_gains_nothing(void)
{
    begin(1);
    scan(program(4000, 80), SCAN_PER_S, 10 * SECOND_MS);
    int passed = 0;
    for (int ms = 0; ms < SECOND_MS; ms++, now_ms++) {
        struct in6_addr ip = fresh();
        for (int i = 0; i < 4; i++)
            passed += ask(ip, program(4000, 80)) == IPU_RESOLVE;
    }
    CHECK(passed <= 4 * 2 * IPU_RESOLUTION_SHARE_PER_S);
    end();
}

static void later_packets_to_an_address_under_resolution_are_free(void)
{
    begin(1);
    struct in6_addr ip = fresh();
    CHECK_EQ(ask(ip, program(5000, 443)), IPU_RESOLVE);
    scan(program(5000, 443), SCAN_PER_S, 3 * SECOND_MS);
    for (int i = 0; i < 5000; i++)
        CHECK_EQ(ask(ip, program(5000, 443)), IPU_RESOLVE);
    end();
}

static void an_answer_gives_the_place_back(void)
{
    begin(1);
    for (int i = 0; i < 2 * IPU_RESOLUTIONS; i++) {
        struct in6_addr ip = fresh();
        CHECK_EQ(ask(ip, program(5000, 443)), IPU_RESOLVE);
        ipu_resolution_answered(&resolution, &ip, now_ms);
        ipu_resolution_answered(&resolution, &ip, now_ms); /* gives nothing more */
    }
    CHECK(scan(program(5000, 443), SCAN_PER_S, 200) < IPU_RESOLUTIONS / 2);
    end();
}

static void hosts_that_have_answered_and_gateways_do_not_wait_behind_strangers(void)
{
    begin(1);
    struct in6_addr known[300];
    for (int i = 0; i < 300; i++) {
        known[i] = fresh();
        ipu_resolution_answered(&resolution, &known[i], now_ms);
    }
    scan(program(4000, 80), SCAN_PER_S, 5 * SECOND_MS);
    int passed = 0;
    for (int i = 0; i < 300; i++)
        passed += ask(known[i], program(4000, 80)) == IPU_RESOLVE;
    CHECK(passed >= 298); /* a few share places, and wait with the strangers */
    struct in6_addr gateway = fresh();
    CHECK_EQ(ipu_resolution_judge(&resolution, &gateway, program(4000, 80), true, now_ms),
             IPU_RESOLVE);
    end();
}

static void an_icmp_error_begins_no_resolution_and_joins_one(void)
{
    static const uint8_t errors4[] = {3, 4, 5, 11, 12}, others4[] = {0, 8, 13};
    static const uint8_t errors6[] = {1, 2, 3, 4, 127}, others6[] = {128, 129};
    uint8_t v4[28] = {0x45, [3] = 28, [9] = IPPROTO_ICMP};
    uint8_t v6[48] = {0x60, [5] = 8, [6] = IPPROTO_ICMPV6};
    begin(1);
    for (size_t i = 0; i < sizeof errors4; i++) {
        v4[20] = errors4[i];
        struct ipu_resolution_flow flow = ipu_resolution_flow_of(&resolution, v4, sizeof v4);
        struct in6_addr ip = fresh();
        CHECK_EQ(ask(ip, flow), IPU_RESOLVE_ERROR);
        CHECK_EQ(ask(ip, program(5000, 443)), IPU_RESOLVE);
        CHECK_EQ(ask(ip, flow), IPU_RESOLVE);
        CHECK_EQ(ipu_resolution_judge(&resolution, &(struct in6_addr){0}, flow, true, now_ms),
                 IPU_RESOLVE);
    }
    for (size_t i = 0; i < sizeof errors6; i++) {
        v6[40] = errors6[i];
        CHECK_EQ(ask(fresh(), ipu_resolution_flow_of(&resolution, v6, sizeof v6)),
                 IPU_RESOLVE_ERROR);
    }
    for (size_t i = 0; i < sizeof others4; i++) {
        v4[20] = others4[i];
        CHECK_EQ(ask(fresh(), ipu_resolution_flow_of(&resolution, v4, sizeof v4)), IPU_RESOLVE);
    }
    for (size_t i = 0; i < sizeof others6; i++) {
        v6[40] = others6[i];
        CHECK_EQ(ask(fresh(), ipu_resolution_flow_of(&resolution, v6, sizeof v6)), IPU_RESOLVE);
    }
    v4[6] = 0x20; /* a fragment says nothing of its type, and neither does a short packet */
    CHECK_EQ(ask(fresh(), ipu_resolution_flow_of(&resolution, v4, sizeof v4)), IPU_RESOLVE);
    v4[6] = 0, v4[20] = 3;
    CHECK_EQ(ask(fresh(), ipu_resolution_flow_of(&resolution, v4, 24)), IPU_RESOLVE);
    end();
}

static void pumps_that_share_have_a_part_each(void)
{
    begin(16);
    CHECK(scan(program(4000, 9), SCAN_PER_S, 200) <= IPU_RESOLUTIONS / 16 / 2);
    end();
}

static void questions_about_routes_have_a_budget_of_their_own(void)
{
    begin(1);
    int may = 0;
    scan(program(4000, 9), SCAN_PER_S, SECOND_MS);
    for (int i = 0; i < 10000; i++)
        may += ipu_resolution_may_ask(&resolution, program(4000, 9), now_ms);
    CHECK(may >= IPU_RESOLUTION_QUESTIONS / 3 && may <= IPU_RESOLUTION_QUESTIONS / 2);
    CHECK(ipu_resolution_may_ask(&resolution, program(4001, 10), now_ms));
    end();
}

static void refusals_are_reported_once_a_second(void)
{
    begin(1);
    int reports = 0;
    for (int ms = 0; ms < 10 * SECOND_MS; ms++, now_ms++)
        reports += ipu_resolution_report(&resolution, now_ms);
    CHECK_EQ(reports, 10);
    end();
}

int main(void)
{
    RUN(a_scan_gets_a_third_at_once_and_then_its_share);
    RUN(the_first_packet_of_another_program_passes_beside_a_scan);
    RUN(a_scan_from_many_sockets_leaves_room_to_other_kinds);
    RUN(a_ping_passes_beside_a_scan_of_pings);
    RUN(answers_of_all_lengths_share_one_place);
    RUN(a_program_that_repeats_after_a_second_passes_beside_a_scan);
    RUN(a_scanner_that_repeats_at_once_gains_nothing);
    RUN(later_packets_to_an_address_under_resolution_are_free);
    RUN(an_answer_gives_the_place_back);
    RUN(hosts_that_have_answered_and_gateways_do_not_wait_behind_strangers);
    RUN(an_icmp_error_begins_no_resolution_and_joins_one);
    RUN(pumps_that_share_have_a_part_each);
    RUN(questions_about_routes_have_a_budget_of_their_own);
    RUN(refusals_are_reported_once_a_second);
    return 0;
}
