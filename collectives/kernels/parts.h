// The kernels of a family in parts, each an image of its own. Drivers of NVIDIA compile
// an image when it is first loaded on a machine, all of it: a job that calls all-reduce
// alone should not wait for the rest. An image is built of one part with
// -DMSCCLPP_PART=<name of it>, and of all parts without.
#ifndef MSCCLPP_COLLECTIVES_PARTS_H_
#define MSCCLPP_COLLECTIVES_PARTS_H_

#ifndef MSCCLPP_PART
#define MSCCLPP_PART 0
#endif

// Of reduce_family.h.
#define MSCCLPP_PART_ALLREDUCE 1  // the algorithms that the tables choose on up to eight GPUs
#define MSCCLPP_PART_SUMS 2       // other algorithms of all-reduce, and sums between copies
#define MSCCLPP_PART_REDUCESCATTER 3
#define MSCCLPP_PART_ROOTED 4  // reduce

// Of move_family.h.
#define MSCCLPP_PART_ALLGATHER 5
#define MSCCLPP_PART_ALLTOALL 6
#define MSCCLPP_PART_BROADCAST 7
#define MSCCLPP_PART_TRANSFERS 8
#define MSCCLPP_PART_SIGNALS 9  // barriers, and the kernels between copies

#define MSCCLPP_HAS_PART(name) (MSCCLPP_PART == 0 || MSCCLPP_PART == MSCCLPP_PART_##name)

#endif  // MSCCLPP_COLLECTIVES_PARTS_H_
