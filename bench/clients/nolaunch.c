/* A driver whose launches do nothing, around the emulated one: it leaves the host time of the libraries above.
 *
 *     cc -O2 -shared -fPIC nolaunch.c -o libnolaunch.so -Wl,--no-as-needed EMULATED/libcuda.so.1 -Wl,-rpath,EMULATED
 *
 * The program switches it by launch_nothing; hosttime.c does, where it finds that. Until then launches are the other driver's.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

static int nothing;

void launch_nothing(int on) { __atomic_store_n(&nothing, on, __ATOMIC_RELEASE); }

int cuLaunchKernelEx(const void* config, void* function, void** parameters, void** extra) {
  static int (*real)(const void*, void*, void**, void**);
  if (__atomic_load_n(&nothing, __ATOMIC_ACQUIRE)) return 0;
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "cuLaunchKernelEx");
  return real(config, function, parameters, extra);
}
