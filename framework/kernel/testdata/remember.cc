// Counts how often waits of GPUs poll after an abort: once one has noticed it, those behind it leave soon.
#include <cstdio>

#define MSCCLPP_REMEMBERS 1
#include "mscclpp/wait.h"

using namespace mscclpp;

static int failed = 0;
#define EXPECT(x) \
  if (!(x)) { ++failed; printf("line %d: expected %s\n", __LINE__, #x); }

static WaitControl control;

static uint32_t polls_of(const WaitSite& site) {
  uint32_t polls = 0;
  auto never = [&polls] { return ++polls, false; };
  EXPECT(!detail::wait_patient(&control, site, never, 0));
  return polls;
}

int main() {
  uint32_t left = 0;
  const WaitSite peer{1, 3, 7, 0, &left}, inside{1, kNoReport, 0, 0, &left}, channel{1, 3, 7, 0};
  // Nothing was left: no wait is shorter for it.
  uint32_t polls = 0;
  auto late = [&polls] { return ++polls == 100 * detail::kPollsPerRecall; };
  EXPECT(detail::wait_patient(&control, peer, late, 0));
  EXPECT(left == 0 && control.reported == 0);

  // A long wait stores the number of the rank that it waits for at each look. A wait for no rank, or for the own one, stores nothing.
  const WaitSite ring{1, 3, kNoRank, 0};
  EXPECT(control.waiting == 0);
  polls = 0;
  auto later = [&polls] { return ++polls == 2 * detail::kPollsPerLook + 1; };
  EXPECT(detail::wait_patient(&control, peer, later, 0));
  EXPECT(control.waiting == 8);
  control.waiting = 0;
  polls = 0;
  EXPECT(detail::wait_patient(&control, ring, later, 0));
  polls = 0;
  EXPECT(detail::wait_patient(&control, inside, later, 0));
  EXPECT(control.waiting == 0);

  control.abort = 1;
  EXPECT(polls_of(channel) <= detail::kFirstLook);
  control.reported = 0;
  EXPECT(polls_of(peer) <= detail::kPollsPerLook);
  EXPECT(left == 1 && control.reported == 1 && control.peer == 7);
  // A thousand kernels behind it, whatever they wait for.
  uint64_t all = 0;
  for (int i = 0; i < 1000; ++i) all += polls_of(i % 2 == 0 ? peer : inside);
  EXPECT(all <= 1000 * 32);
  // They leave without a load of the host's words, and waits of another communicator do not.
  control.abort = 0;
  EXPECT(polls_of(peer) <= 32);
  uint32_t other = 0;
  polls = 0;
  EXPECT(detail::wait_patient(&control, (WaitSite{1, 3, 7, 0, &other}), late, 0));

  // A wait that ends by its deadline is remembered as well: what stands behind it cannot go on.
  control = WaitControl{};
  control.deadline = 1;
  left = 0;
  polls_of(peer);
  EXPECT(left == 1 && control.reported == 1);
  return failed != 0;
}
