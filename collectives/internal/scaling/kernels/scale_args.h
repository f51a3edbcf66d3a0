// The argument of the kernel that multiplies inputs before a sum. args.go is the Go twin; a test compares sizes and
// offsets. Because of the line below a hash of this file, without comments, is in the manifest of every image.
//
// mscclpp:layout
#ifndef MSCCLPP_COLLECTIVES_SCALE_ARGS_H_
#define MSCCLPP_COLLECTIVES_SCALE_ARGS_H_

#include <mscclpp/layout.h>

namespace mscclpp {
namespace collectives {

struct ScaleArgs {
  const void* input;
  void* output;            // may be input
  const void* at;          // not null: an element, which is the factor and is read now
  uint64_t factor;         // else its bits, in the type that elements are multiplied in
  uint64_t count;          // elements of a slice
  uint64_t input_stride;   // bytes from slice to slice
  uint64_t output_stride;
  uint64_t slices;
};
static_assert(sizeof(ScaleArgs) == 64, "layout");

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_SCALE_ARGS_H_
