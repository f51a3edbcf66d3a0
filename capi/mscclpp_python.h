/* The interface of libmscclpp.so.1 for the package of the same name for Python, and of use to no other program: functions that Python
 * calls itself, with its own objects, while it holds its lock. Objects of Python are void * here. It is 0.x, as mscclpp.h is. */
#ifndef MSCCLPP_PYTHON_H_
#define MSCCLPP_PYTHON_H_

#include "mscclpp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The calls of a caller. */
enum {
  MSCCLPP_PYTHON_ALL_REDUCE, MSCCLPP_PYTHON_REDUCE, MSCCLPP_PYTHON_REDUCE_SCATTER, MSCCLPP_PYTHON_ALL_GATHER, MSCCLPP_PYTHON_BROADCAST,
  MSCCLPP_PYTHON_ALL_TO_ALL, MSCCLPP_PYTHON_SEND, MSCCLPP_PYTHON_RECV
};

/* mscclpp_python_caller returns a function of Python for calls on a communicator, NULL without an exception where the process has no
 * CPython: function(call, send, recv, op, root, stream) with a number of the enumeration, two arrays (of messages twice the same one), a
 * reduction, a root or peer, and None, a number or a stream. It returns the result of the call, or -1 where it has not made the call, for
 * its arguments are not those that it knows, or wrong. Python's lock is released while the call is made.
 * ranks and gpu: of the communicator; -1 for one on the host. */
void *mscclpp_python_caller(mscclpp_comm_t comm, int32_t ranks, int32_t gpu);

/* How memory of arrays is found. */
enum {
  MSCCLPP_PYTHON_BUFFER, /* by Python's buffers: memory of the host */
  MSCCLPP_PYTHON_TABLE,  /* by the functions of DLPack's __dlpack_c_exchange_api__, which way is that capsule */
  MSCCLPP_PYTHON_CUPY    /* by the attributes of CuPy's arrays; way is a function that returns the current stream, which has a ptr */
};

/* mscclpp_python_learn lets callers take arrays of exactly a type: 1. 0: that is not possible, and its arrays are left to the caller. */
int mscclpp_python_learn(void *type, int32_t how, void *way);

#ifdef __cplusplus
}
#endif

#endif
