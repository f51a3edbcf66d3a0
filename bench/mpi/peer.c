// The peer of `mscclpp-run bench`: measures Open MPI (or any MPI) on float32
// all-reduce and all-gather with the same method, so that two columns of numbers
// may be divided by each other.
//
//   mpirun -n 2 peer allreduce 1024:50:64 4096:50:64 …
//   mpirun -n 2 peer first
//
// A point is BYTES:ITERATIONS:CALLS. Method, the same as in package bench:
//
//   for each point:
//     run WARMUP iterations, untimed
//     for each iteration: barrier; read the clock; CALLS calls back to back; read
//       the clock; the sample is the difference divided by CALLS
//     each rank takes the median of its samples; the result is the slowest rank's
//
// BYTES is the larger buffer: for the all-gather, what a rank receives. Buffers are
// page aligned ordinary heap memory, written once before the first call. One JSON
// object a line goes to stdout, from rank 0. "errors" counts wrong elements after
// the last timed call, over all ranks.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kWarmup = 5, kPage = 4096 };

static int rank, ranks;

static void fail(const char* what, const char* got) {
  fprintf(stderr, "peer: %s: %s\n", what, got);
  MPI_Abort(MPI_COMM_WORLD, 2);
}

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

// The mean of the two middle samples when their number is even.
static double median(double* v, int n) {
  qsort(v, (size_t)n, sizeof *v, by_value);
  return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static float* buffer(size_t bytes) {
  void* p = NULL;
  if (posix_memalign(&p, kPage, bytes ? bytes : kPage) != 0) fail("no memory for a buffer", "");
  return p;
}

typedef struct {
  int gather;      // all-gather, else all-reduce
  int count;       // elements a rank contributes
  float *in, *out;
} Work;

static void call(const Work* w) {
  if (w->gather)
    MPI_Allgather(w->in, w->count, MPI_FLOAT, w->out, w->count, MPI_FLOAT, MPI_COMM_WORLD);
  else
    MPI_Allreduce(w->in, w->out, w->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

// Small integers: every sum is exact in any order.
static float element(int r, size_t i) { return (float)((i * 7 + (size_t)r * 13) % 101); }

static long long wrong(const Work* w) {
  long long bad = 0, all = 0;
  for (size_t i = 0; i < (size_t)w->count; i++) {
    float sum = 0;
    for (int r = 0; r < ranks; r++) {
      sum += element(r, i);
      if (w->gather) bad += w->out[(size_t)r * (size_t)w->count + i] != element(r, i);
    }
    if (!w->gather) bad += w->out[i] != sum;
  }
  MPI_Allreduce(&bad, &all, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

static void measure(const char* name, long long bytes, int iterations, int calls) {
  Work w = {.gather = strcmp(name, "allgather") == 0};
  w.count = (int)(bytes / 4 / (w.gather ? ranks : 1));
  size_t in = (size_t)w.count * 4, out = w.gather ? in * (size_t)ranks : in;
  w.in = buffer(in);
  w.out = buffer(out);
  for (size_t i = 0; i < (size_t)w.count; i++) w.in[i] = element(rank, i);
  memset(w.out, 0xff, out);
  double* samples = malloc(sizeof *samples * (size_t)iterations);
  if (samples == NULL) fail("no memory for samples", "");
  for (int i = -kWarmup; i < iterations; i++) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now_us();
    for (int c = 0; c < calls; c++) call(&w);
    double took = (now_us() - start) / calls;
    if (i >= 0) samples[i] = took;
  }
  double mine = median(samples, iterations), time = 0;
  MPI_Allreduce(&mine, &time, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  long long errors = wrong(&w);
  double algbw = (double)out / time * 1e-3;
  double factor = (double)(ranks - 1) / ranks * (w.gather ? 1 : 2);
  if (rank == 0) {
    printf("{\"collective\":\"%s\",\"bytes\":%lld,\"dtype\":\"f32\",\"op\":\"%s\",\"ranks\":%d,"
           "\"algorithm\":\"mpi\",\"transport\":\"mpi\",\"in_place\":false,\"registered\":false,"
           "\"iterations\":%d,\"calls\":%d,\"time_us\":%.4f,\"algbw_gbps\":%.6g,\"busbw_gbps\":%.6g,\"errors\":%lld}\n",
           name, (long long)out, w.gather ? "none" : "sum", ranks, iterations, calls, time, algbw, algbw * factor, errors);
    fflush(stdout);
  }
  free(samples);
  free(w.in);
  free(w.out);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 2) fail("usage", "peer allreduce|allgather BYTES:ITERATIONS:CALLS …, or peer first");
  if (strcmp(argv[1], "first") == 0) {  // start of the job to the first completed all-reduce
    float in = 1, out = 0;
    MPI_Allreduce(&in, &out, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (out != (float)ranks) fail("first all-reduce", "wrong sum");
    printf("rank %d of %d: done\n", rank, ranks);
    fflush(stdout);
  } else if (strcmp(argv[1], "allreduce") == 0 || strcmp(argv[1], "allgather") == 0) {
    for (int i = 2; i < argc; i++) {
      long long bytes;
      int iterations, calls;
      char rest;
      if (sscanf(argv[i], "%lld:%d:%d%c", &bytes, &iterations, &calls, &rest) != 3 || bytes < 0 || bytes > (1ll << 32) ||
          iterations < 1 || calls < 1)
        fail("expected BYTES:ITERATIONS:CALLS", argv[i]);
      measure(argv[1], bytes, iterations, calls);
    }
  } else {
    fail("expected allreduce, allgather or first", argv[1]);
  }
  MPI_Finalize();
  return 0;
}
