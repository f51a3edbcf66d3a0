// The maker's header, which the compiler reads before any other: here a device's intrinsics would be. A toy runs a kernel as one
// block of one thread, which is what the headers of mscclpp-go take a processor for.
#ifndef TOY_KERNEL_H_
#define TOY_KERNEL_H_
#define TOY_KERNEL 1
#endif
