/* A tool of NVTX that writes a line for each range. With TEST_REFUSES it does not start. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*function)(void);

struct callbacks {
  size_t size;
  int (*get)(int module, function*** table, unsigned* size);
};

struct attributes {
  uint16_t version, size;
  uint32_t category;
  int32_t colorType;
  uint32_t color;
  int32_t payloadType, reserved0;
  uint64_t payload;
  int32_t messageType;
  const char* message;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE* out;
static int domain;
static _Thread_local int depth;

static void* create(const char* name) {
  fprintf(out, "domain %s\n", name);
  return &domain;
}

static void initialize(const void* reserved) { fprintf(out, "initialize %d\n", reserved == NULL); }

static int push(void* in, const struct attributes* a) {
  pthread_mutex_lock(&lock);
  fprintf(out, "push %d %d %s version=%d size=%d type=%d payload=%d:%llu\n", in == &domain, depth, a->message, a->version, a->size, a->messageType, a->payloadType, (unsigned long long)a->payload);
  fflush(out);
  pthread_mutex_unlock(&lock);
  return depth++;
}

static int pop(void* in) {
  pthread_mutex_lock(&lock);
  fprintf(out, "pop %d %d\n", in == &domain, depth - 1);
  fflush(out);
  pthread_mutex_unlock(&lock);
  return --depth;
}

int InitializeInjectionNvtx2(const void* (*export)(uint32_t)) {
  function** table = NULL;
  unsigned size = 0;
  out = fopen(getenv("TEST_RANGES"), "w");
  if (getenv("TEST_REFUSES")) return 0;
  const struct callbacks* c = export(1);
  struct { size_t size; uint32_t version; }* v = (void*)export(3);
  fprintf(out, "version %u unknown table %d\n", v->version, export(99) != NULL);
  for (int module = 1; module <= 6; module++) {
    int found = c->get(module, &table, &size);
    fprintf(out, "module %d %d %u\n", module, found, size);
    if (table[0] != NULL) return 0;
  }
  fprintf(out, "module 7 %d\n", c->get(7, &table, &size));
  if (!c->get(5, &table, &size)) return 0;
  *table[4] = (function)push;
  *table[5] = (function)pop;
  *table[12] = (function)create;
  *table[15] = (function)initialize;
  return 1;
}
