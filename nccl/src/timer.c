/* What both drivers have of devices: how long work on a stream takes, and a device's number on its machine. */
#include <stdlib.h>

#include "cuda.h"
#include "env.h"
#include "maker.h"

struct cuda_timer {
  int device;
  cudaStream_t stream;
  void *from, *to;
};

struct cuda_timer* cuda_timer_start(int device, cudaStream_t stream) {
  struct cuda_timer* t = device >= 0 ? calloc(1, sizeof *t) : NULL;
  if (t == NULL) return NULL;
  *t = (struct cuda_timer){.device = device, .stream = stream};
  if (cuda_mark(device, stream, &t->from)) return t;
  cuda_timer_free(t);
  return NULL;
}

int cuda_timer_stop(struct cuda_timer* t) { return t && cuda_mark(t->device, t->stream, &t->to); }

int cuda_timer_done(struct cuda_timer* t, double* seconds) {
  float milliseconds = 0;
  int done = cuda_marks_apart(t->device, t->from, t->to, &milliseconds);
  *seconds = (double)milliseconds / 1000;
  return done;
}

void cuda_timer_free(struct cuda_timer* t) {
  if (t == NULL) return;
  cuda_event_free(t->from, t->device);
  cuda_event_free(t->to, t->device);
  free(t);
}

int cuda_nvml(int device) {
  const char* list = variable(VISIBLE_DEVICES);
  for (int i = 0; list && device >= 0; i++) {
    char* end;
    long n = strtol(list, &end, 10);
    if (end == list || n < 0 || (*end && *end != ',')) break; /* names, or the end of the list */
    if (i == device) return (int)n;
    list = *end ? end + 1 : end;
  }
  return device < 0 ? 0 : device;
}
