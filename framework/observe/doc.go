// Package observe shows what the ranks of a job do, while it runs and after it died.
//
// Each rank has a region of shared memory. Its first pages say who the rank is and in which call it is; they are kept
// at all times, and cost a few stores a call. Behind them are rings of fixed records of 32 bytes, one for each writer:
// the host path of each communicator, the life of the job, each proxy, marks of the program. Writers fill them only
// while the switch of the region is on, and look at it by one load and one branch that is predicted. A full ring is
// overwritten from its oldest record on, and readers count what they have lost.
//
// The launcher makes the memory, so that it outlives a rank that is killed; a rank without a launcher makes its own.
// Readers are other processes of the same user, which find regions by [Find]. They map them for reading, and a rank
// never waits for them.
//
// The layout is not a stable interface: readers and writers are of one version, which the header has.
package observe
