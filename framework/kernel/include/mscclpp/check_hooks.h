// Functions of the checking emulator for the other headers; check.h defines them.
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

// The same, and returns the value that the first thread has passed.
uint64_t block_share(uint64_t value, Where where);

// A place at which another thread may run.
void point();

// ThreadSanitizer knows no fences. These calls stand in for them: fence_release behind a fence, for the word that is
// stored relaxed next, and fence_acquire before a fence, for the word that a relaxed load has seen.
void fence_release(const void* word);
void fence_acquire(const void* word);

// Called between two polls of a wait: others run. When no thread of the whole job
// can make progress, the emulator reports a deadlock and ends the run.
void poll(uint32_t channel, uint32_t peer, uint64_t expected, uint64_t seen, Where where);

// Called when the wait is over: it succeeded, or was left because of an abort.
void progress();
void left();

}  // namespace check
}  // namespace mscclpp
#endif  // MSCCLPP_CHECK_HOOKS_H_
