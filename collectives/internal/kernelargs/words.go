package kernelargs

// WaitedFor are words for what kernels wait for, by the numbers of kernels/links.h (Word).
var WaitedFor = [...]string{
	1: "a packet", "a chunk in a pipe", "room in a pipe", "a staged chunk", "room in a stage", "a barrier", "what the call is",
	"the switch", "a step of copies", "the offer of a buffer",
}

// Release is when a kernel lets the next one begin: it mirrors Release in kernels/args.h.
type Release uint32

// Values of Release.
const (
	ReleaseSent   Release = iota // everything, and all before it have ended
	ReleaseAtOnce                // when it begins
	ReleaseMet                   // its peers, so that it ends beside any work on the device; or at its end
)
