// What the checking emulator offers to the other headers; check.h defines it.
// Production builds never include this file.
#ifndef MSCCLPP_CHECK_HOOKS_H_
#define MSCCLPP_CHECK_HOOKS_H_

#include "layout.h"
#include "target.h"

namespace mscclpp {
namespace check {

uint32_t thread_id();
uint32_t block_dim();
uint32_t block_id();
uint32_t grid_dim();

// Waits for all threads of the block; true iff all of them said true.
bool block_sync(bool ok, Where where);

// The same, and returns what the first thread has passed.
uint64_t block_share(uint64_t value, Where where);

// A place at which another thread may run.
void point();

// ThreadSanitizer knows no fences. Said of a word behind the fence before it is stored relaxed, and before the one
// behind the relaxed load that has seen it, they are to it what the fences are.
void fence_tells(const void* word);
void fence_told(const void* word);

// Called between two polls of a wait: others run. When nobody in the whole job
// can get on, the emulator reports a deadlock and ends the run.
void poll(uint32_t channel, uint32_t peer, uint64_t expected, uint64_t seen, Where where);

// Called when the wait is over: it succeeded, or was left because of an abort.
void progress();
void left();

}  // namespace check
}  // namespace mscclpp
#endif  // MSCCLPP_CHECK_HOOKS_H_
