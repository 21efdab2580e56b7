/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "refuse.h"
#include "core/random.h"
#include "pump/tables/route_answers.h"

static const struct ipu_hash_seed seed = {
    {0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89}}; /* of pi */

static struct ipu_route_answers answers_of(uint32_t max)
{
    struct ipu_route_answers answers;
    CHECK_EQ(ipu_route_answers_init(&answers, max, &seed), 0);
    return answers;
}

static struct ipu_flow_key key_of(uint32_t number)
{
    struct ipu_flow_key key;
    memset(&key, 0, sizeof key);
    memcpy(key.dst.s6_addr + 12, &number, sizeof number);
    return key;
}

static int put(struct ipu_route_answers *answers, uint32_t number, uint8_t kind)
{
    static const struct ipu_hop hop = {.weight = 1, .on_link = 1};
    struct ipu_route_answer answer = {.key = key_of(number), .kind = kind};
    int error;
    if (kind == IPU_ROUTE_MULTIPATH)
        answer.hops = ipu_hops_copy(&hop, 1, &error);
    return ipu_route_answers_put(answers, answer);
}

static const struct ipu_route_answer *find(const struct ipu_route_answers *answers, uint32_t number)
{
    struct ipu_flow_key key = key_of(number);
    return ipu_route_answers_find(answers, &key);
}

static void answers_are_found_until_they_are_forgotten(void)
{
    struct ipu_route_answers answers = answers_of(10000);
    CHECK(find(&answers, 0) == NULL);
    for (uint32_t i = 0; i < 5000; i++)
        CHECK_EQ(put(&answers, i, i % 2 ? IPU_ROUTE_MULTIPATH : IPU_ROUTE_ON_LINK), 0);
    CHECK_EQ(answers.count, 5000);
    for (uint32_t i = 0; i < 5000; i++)
        CHECK_EQ(find(&answers, i)->kind, i % 2 ? IPU_ROUTE_MULTIPATH : IPU_ROUTE_ON_LINK);
    CHECK(find(&answers, 5000) == NULL);
    CHECK_EQ(put(&answers, 1, IPU_ROUTE_UNREACHABLE), 0); /* instead of one with hops */
    CHECK_EQ(find(&answers, 1)->kind, IPU_ROUTE_UNREACHABLE);
    CHECK_EQ(answers.count, 5000);
    ipu_route_answers_flush(&answers);
    CHECK(find(&answers, 0) == NULL);
    CHECK_EQ(put(&answers, 7, IPU_ROUTE_MULTIPATH), 0);
    ipu_route_answers_free(&answers); /* with hops in it */
}

static void a_full_table_forgets_all(void)
{
    struct ipu_route_answers answers = answers_of(100);
    for (uint32_t i = 0; i < 100; i++)
        CHECK_EQ(put(&answers, i, IPU_ROUTE_MULTIPATH), 0);
    CHECK_EQ(put(&answers, 100, IPU_ROUTE_ON_LINK), 100);
    CHECK_EQ(answers.count, 1);
    CHECK(find(&answers, 0) == NULL);
    CHECK(find(&answers, 100) != NULL);
    ipu_route_answers_free(&answers);
}

static void a_refused_allocation_leaves_the_answers_as_they_were(void)
{
    struct ipu_route_answers answers = answers_of(1000);
    refuse_after(0);
    CHECK_EQ(put(&answers, 0, IPU_ROUTE_ON_LINK), -ENOMEM);
    CHECK(refuse_stop());
    for (uint32_t i = 0; i < 48; i++) /* 3/4 of the first 64 slots */
        CHECK_EQ(put(&answers, i, IPU_ROUTE_ON_LINK), 0);
    refuse_after(1); /* the hops are there, the larger table is not */
    CHECK_EQ(put(&answers, 48, IPU_ROUTE_MULTIPATH), -ENOMEM);
    CHECK(refuse_stop());
    CHECK_EQ(answers.count, 48);
    CHECK(find(&answers, 47) != NULL);
    ipu_route_answers_free(&answers);
}

static void a_key_has_the_fields_that_distinguish_flows(void)
{
    uint8_t ip[28] = {0x45, 0xb8, 0, 28, 0, 0, 0, 0, 64, IPPROTO_UDP, 0, 0, 10, 0,
                      0,    1,    8, 8,  8, 8, 1, 2, 3,  4,           0, 8, 0,  0};
    struct ipu_flow_key key = ipu_flow_key_of(ip, sizeof ip), masked = key;
    CHECK_EQ(key.tos, 0xb8);
    CHECK_EQ(key.protocol, IPPROTO_UDP);
    CHECK(memcmp(key.ports, ip + 20, 4) == 0);
    ipu_flow_key_mask(&masked, IPU_ROUTE_FIELDS);
    CHECK(memcmp(&masked, &key, sizeof key) == 0);
    ipu_flow_key_mask(&masked, 0);
    CHECK_EQ(masked.tos | masked.protocol | masked.ports[0] | masked.src.s6_addr[15], 0);
    CHECK(memcmp(&masked.dst, &key.dst, sizeof key.dst) == 0);
    struct ipu_flow_key cut = ipu_flow_key_of(ip, 22); /* without room for the ports */
    CHECK_EQ(cut.ports[0], 0);
    ip[6] = 0x20; /* more fragments */
    struct ipu_flow_key fragment = ipu_flow_key_of(ip, sizeof ip);
    CHECK_EQ(fragment.protocol | fragment.ports[0], 0);
}

static void an_ipv6_key_has_ports_only_behind_the_header(void)
{
    uint8_t ip[48] = {0x6b, 0x80, 0, 0, 0, 8, IPPROTO_TCP, 64, [40] = 1, 2, 3, 4};
    struct ipu_flow_key key = ipu_flow_key_of(ip, sizeof ip);
    CHECK_EQ(key.tos, 0xb8);
    CHECK(memcmp(key.ports, ip + 40, 4) == 0);
    ip[6] = IPPROTO_FRAGMENT;
    key = ipu_flow_key_of(ip, sizeof ip);
    CHECK_EQ(key.protocol | key.ports[0], 0);
    ip[6] = IPPROTO_HOPOPTS;
    key = ipu_flow_key_of(ip, sizeof ip);
    CHECK_EQ(key.ports[0], 0);
}

/* The flows of a resolver or a load test differ in a port that counts up. Whatever the seed, each
 * third of the range of hashes gets its share of them: 300 of 900 with a deviation of 14. */
static void flows_with_ports_that_count_up_spread_under_every_seed(void)
{
    enum { SEEDS = 5000, FLOWS = 900, PARTS = 3, LEAST = 200 };
    uint64_t state = 1;
    for (int each = 0; each < SEEDS; each++) {
        struct ipu_hash_seed drawn;
        uint32_t got[PARTS] = {0};
        for (size_t word = 0; word < sizeof drawn.word / sizeof drawn.word[0]; word++)
            drawn.word[word] = ipu_random_next(&state);
        for (uint16_t port = 0; port < FLOWS; port++) {
            struct ipu_flow_key key = key_of(8);
            uint16_t ports[2] = {htons(port), htons(53)};
            key.protocol = IPPROTO_UDP;
            memcpy(key.ports, ports, sizeof key.ports);
            got[(uint64_t)ipu_flow_key_hash(&key, &drawn) * PARTS >> 32]++;
        }
        for (int part = 0; part < PARTS; part++)
            CHECK(got[part] > LEAST);
    }
}

int main(void)
{
    RUN(answers_are_found_until_they_are_forgotten);
    RUN(a_full_table_forgets_all);
    RUN(a_refused_allocation_leaves_the_answers_as_they_were);
    RUN(a_key_has_the_fields_that_distinguish_flows);
    RUN(an_ipv6_key_has_ports_only_behind_the_header);
    RUN(flows_with_ports_that_count_up_spread_under_every_seed);
}
