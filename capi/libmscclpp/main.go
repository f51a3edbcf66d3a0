// Command libmscclpp is the C library: a shared object that exports what mscclpp.h declares.
//
// Each exported function has a C side, in the files that end in .c, which checks what can be
// checked without Go and keeps the errors of each thread, and a Go side, named mscclppGo…,
// which is hidden by the version script. The Go side looks a handle up, does the work and turns
// errors into codes; a panic becomes a code as well.
package main

func main() {} // for -buildmode=c-shared
