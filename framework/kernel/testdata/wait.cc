// Waits for other blocks of a kernel, and waits for peers, beside a deadline.
#include <cstdio>

#include "mscclpp/wait.h"

using namespace mscclpp;

static int failed = 0;
#define EXPECT(x) \
  if (!(x)) { ++failed; printf("line %d: expected %s\n", __LINE__, #x); }

int main() {
  WaitControl control = {};
  control.deadline = 1000000;
  const WaitSite inside{1, kNoReport, 0, 0}, outside{1, 3, 7, 0};
  // The word that it waits for comes five deadlines later.
  const uint64_t begin = detail::now_ns();
  const auto late = [begin] { return detail::now_ns() - begin > 5000000; };
  EXPECT(wait_until(&control, inside, late));
  EXPECT(control.reported == 0);
  const auto never = [] { return false; };
  EXPECT(!wait_until(&control, outside, never));
  EXPECT(control.reported == 1 && control.channel == 3 && control.peer == 7);
  EXPECT(!wait_until(&control, inside, never));
  control.reported = 0;
  control.abort = 1;
  EXPECT(!wait_brief(&control, inside, never));
  EXPECT(control.reported == 0);
  return failed != 0;
}
