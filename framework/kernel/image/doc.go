// Package image builds kernels and describes what was built.
//
// A [Spec] lists families: sources that belong together, the element types they are
// compiled for, and macros. [Build] compiles each for a number of targets into a
// folder of images with a manifest.json, which says for every image what it was
// made from and with: a hash of the sources, the flags, the compiler's version and
// a hash of the result; and the layout of arguments that it expects, a hash of
// mscclpp/layout.h and of every header with the line "// mscclpp:layout", which a rank
// compares with its own before it launches kernels. [Check] holds a folder against its sources.
// [Open] reads a folder, and gives what a transport's description needs.
//
// Compiling needs no vendor toolkit: clang-19 and lld-19 for GPUs, any C++17
// compiler for the CPU. The same sources, flags and compiler give the same bytes; for
// AMD only nearly always, so there an image is what two builds agree on, and Check
// builds again before it says that one differs.
//
// cmd/mscclpp-kernels is the command around it; vendors of transports use it too.
package image
