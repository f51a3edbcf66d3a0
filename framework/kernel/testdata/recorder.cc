// Records of launches whose pieces of work are short, and of one with long ones. A line has the event, its phase and its peer of each record.
#include <cstdio>

#include "mscclpp/records.h"

using namespace mscclpp;
using detail::Recorder;

static uint64_t next_, records_[4 * 64];
static RecordClock clock_ = {2, 0, 1000000, 0, ~uint64_t(0)};  // it stands at ns
static RecordRing ring_ = {&next_, records_, nullptr, 0, 63, &clock_, 0, 0};

static void print(const char* name) {
  std::printf("%s:", name);
  for (uint64_t i = 0; i < next_; ++i) {
    const uint64_t last = records_[4 * i + 3];
    std::printf(" %u.%u.%d", unsigned(last & 0xfffc), unsigned(last & 3), int(int16_t(last >> 32)));
  }
  std::printf("\n");
  next_ = 0;
}

// Sixteen copies of 32 KiB that take took ns each, a signal behind each, and a wait.
static void launch(Recorder& r, uint64_t took) {
  r.begin(&ring_);
  for (int i = 0; i < 16; ++i) {
    clock_.ns += took;
    r.did(kRecordCopy, 32768);
    r.sent(kRecordSignal, 0, 1 + i % 2);
  }
  r.wait(clock_.ns, 1);
  clock_.ns += took;
  r.waited();
  r.end();
}

int main() {
  Recorder r;
  launch(r, 100);
  print("short");
  launch(r, 100);
  print("again");
  launch(r, 3000);
  print("later");

  clock_.ns += 10000;
  r.begin(&ring_);
  r.did(kRecordPackets, 100);
  clock_.ns += 1000;
  r.wait(clock_.ns, 3);  // the packets before it took the time until here
  clock_.ns += 1000000;
  r.did(kRecordReduce, 1 << 20);
  clock_.ns += 5000;
  r.did(kRecordReduce, 1 << 20);
  r.end();
  print("long");
  return 0;
}
