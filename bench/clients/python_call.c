/* The cost of a call from C, for python_call.py: nanoseconds of each of n calls of a function with eight arguments, of which it may have fewer. */
#include <time.h>

double python_call(int (*function)(long, long, long, long, long, long, long, long), const long* a, int n) {
  struct timespec begun, ended;
  clock_gettime(CLOCK_MONOTONIC, &begun);
  for (int i = 0; i < n; i++)
    if (function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7])) return -1;
  clock_gettime(CLOCK_MONOTONIC, &ended);
  return ((double)(ended.tv_sec - begun.tv_sec) * 1e9 + (double)(ended.tv_nsec - begun.tv_nsec)) / n;
}
