/* What differs between libnccl.so.2 and librccl.so.1, which are made of the same sources but for their calls of the driver. */
#pragma once

#ifdef MSCCLPP_RCCL
#define LIBRARY_FILE "librccl.so.1"
#define LIBRARY_SPOKEN "RCCL"
#define LIBRARY_RUNTIME "hip7.0"
#define LIBRARY_VERSION_CODE NCCL_VERSION(2, 26, 6) /* of ROCm 7.0 */
#define DEVICE_FORMAT "hip:%d"
#define VISIBLE_DEVICES "HIP_VISIBLE_DEVICES"
#define PEERS "xgmi" /* the transport between GPUs of a host */
#define FP8_IS_FNUZ 1
#else
#define LIBRARY_FILE "libnccl.so.2"
#define LIBRARY_SPOKEN "NCCL"
#define LIBRARY_RUNTIME "cuda13.0"
#define LIBRARY_VERSION_CODE NCCL_VERSION_CODE
#define DEVICE_FORMAT "cuda:%d"
#define VISIBLE_DEVICES "CUDA_VISIBLE_DEVICES"
#define PEERS "cudaipc"
#define FP8_IS_FNUZ 0
#endif
