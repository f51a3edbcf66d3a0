// Package check runs kernels in the checking emulator: every thread a fiber, all
// ranks in one process. The emulator itself is C++, in include/mscclpp/check.h,
// which also says how to write a program of tests; this package compiles such
// programs and runs them in four modes.
//
//	Plain   threads in turn: deadlocks and wrong results
//	Seeds   schedules that switch threads at every ordered operation; a failure
//	        names its seed, which replays it
//	Races   ThreadSanitizer, under some seeds: missing releases, acquires, barriers
//	Memory  AddressSanitizer and UndefinedBehaviorSanitizer
//
// The suite of planted bugs in testdata shows that the modes find what they should.
package check
