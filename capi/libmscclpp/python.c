/* Calls with objects of Python, of which C takes what it needs. The functions of Python are looked up in the process: the library is
 * for programs without it, too. */
#include <dlfcn.h>
#include <string.h>
#include <sys/types.h>

#include "../mscclpp_python.h"
#include "internal.h"

/* What is known of CPython: of its stable ABI, and Py_buffer, which became a part of that with 3.11 as it was before. */
typedef struct object object;
struct method {
  const char *name;
  object *(*function)(object *self, object *const *arguments, ssize_t n);
  int flags;
  const char *documentation;
};
struct buffer {
  void *at;
  object *owner;
  ssize_t bytes, itemsize;
  int readonly, dimensions;
  char *format;
  ssize_t *shape, *strides, *suboffsets;
  void *internal;
};
enum { FASTCALL = 0x80, WRITABLE = 1, FORMAT = 4, IN_C_ORDER = 8 };
static const unsigned long is_whole = 1ul << 24; /* of types: the class int, or below it */

static struct {
  object *none, **exception;
  object *(*type)(object *);
  unsigned long (*flags)(object *type);
  void (*hold)(object *), (*drop)(object *);
  object *(*function)(struct method *, object *self, object *module);
  object *(*bytes)(const char *, ssize_t);
  char *(*content)(object *bytes);
  object *(*name)(const char *);
  object *(*attribute)(object *, object *name);
  object *(*call)(object *);
  int (*truth)(object *);
  long (*number)(object *);
  void *(*pointer)(object *);
  object *(*from_number)(long);
  const char *(*text)(object *, ssize_t *size);
  int (*buffer)(object *, struct buffer *, int flags);
  void (*release)(struct buffer *);
  void *(*capsule)(object *, const char *name);
  object *(*raised)(void);
  int (*matches)(object *exception);
  void (*forget)(void);
  void *(*unlock)(void);
  void (*lock)(void *);
} py;

static struct { object *is_neg, *data, *ptr, *device_id, *size, *dtype, *code, *flags, *c_contiguous, *cuda_stream; } names;

static int found(void) {
  static int done; /* under Python's lock */
  static const struct { void *at; const char *name; } wanted[] = {
      {&py.none, "_Py_NoneStruct"}, {&py.exception, "PyExc_Exception"}, {&py.type, "PyObject_Type"}, {&py.flags, "PyType_GetFlags"},
      {&py.hold, "Py_IncRef"}, {&py.drop, "Py_DecRef"}, {&py.function, "PyCFunction_NewEx"}, {&py.bytes, "PyBytes_FromStringAndSize"},
      {&py.content, "PyBytes_AsString"}, {&py.name, "PyUnicode_InternFromString"}, {&py.attribute, "PyObject_GetAttr"},
      {&py.call, "PyObject_CallNoArgs"}, {&py.truth, "PyObject_IsTrue"}, {&py.number, "PyLong_AsLong"}, {&py.pointer, "PyLong_AsVoidPtr"},
      {&py.from_number, "PyLong_FromLong"}, {&py.text, "PyUnicode_AsUTF8AndSize"}, {&py.buffer, "PyObject_GetBuffer"},
      {&py.release, "PyBuffer_Release"}, {&py.capsule, "PyCapsule_GetPointer"}, {&py.raised, "PyErr_Occurred"},
      {&py.matches, "PyErr_ExceptionMatches"}, {&py.forget, "PyErr_Clear"}, {&py.unlock, "PyEval_SaveThread"}, {&py.lock, "PyEval_RestoreThread"},
  };
  static const struct { object **at; const char *name; } words[] = {
      {&names.is_neg, "is_neg"}, {&names.data, "data"}, {&names.ptr, "ptr"}, {&names.device_id, "device_id"}, {&names.size, "size"},
      {&names.dtype, "dtype"}, {&names.code, "char"}, {&names.flags, "flags"}, {&names.c_contiguous, "c_contiguous"}, {&names.cuda_stream, "cuda_stream"},
  };
  if (done) return 1;
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
    if ((*(void **)wanted[i].at = dlsym(RTLD_DEFAULT, wanted[i].name)) == NULL) return 0;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if ((*words[i].at = py.name(words[i].name)) == NULL) return py.forget(), 0;
  return done = 1;
}

/* DLPack's tensor, and its table of functions, of version 1. */
struct tensor {
  void *data;
  int32_t device, number, dimensions;
  uint8_t code, bits;
  uint16_t lanes;
  const int64_t *shape, *strides;
  uint64_t offset;
};
struct table {
  uint32_t major, minor;
  const void *older;
  void *allocate, *export, *import;
  int (*tensor)(void *array, struct tensor *);
  int (*stream)(int32_t device, int32_t number, void **stream);
};
enum { ON_HOST = 1, ON_CUDA = 2, ON_ROCM = 10 };

/* The types of arrays that were learned, which stay. */
static struct known {
  object *type, *way;
  const struct table *table;
  int how;
} known[8];
static int learned;

int mscclpp_python_learn(void *type, int32_t how, void *way) {
  const int n = __atomic_load_n(&learned, __ATOMIC_ACQUIRE);
  struct known k = {type, way, NULL, how};
  if (!found()) return 0;
  for (int i = 0; i < n; i++)
    if (known[i].type == type) return 1;
  if (n == sizeof known / sizeof *known) return 0;
  if (how == MSCCLPP_PYTHON_TABLE) {
    k.table = py.capsule(way, "dlpack_exchange_api");
    if (k.table == NULL) return py.forget(), 0;
    if (k.table->major != 1 || k.table->tensor == NULL || k.table->stream == NULL) return 0;
  }
  py.hold(type), py.hold(way);
  known[n] = k;
  __atomic_store_n(&learned, n + 1, __ATOMIC_RELEASE);
  return 1;
}

static const struct known *knowledge(object *array) {
  const int n = __atomic_load_n(&learned, __ATOMIC_ACQUIRE);
  object *type = py.type(array);
  py.drop(type); /* of which the array has one reference more */
  for (int i = 0; i < n; i++)
    if (known[i].type == type) return &known[i];
  return NULL;
}

/* An array of a call. */
struct array {
  const struct known *known;
  void *at;
  size_t count;
  int type; /* mscclpp_type_t */
  int32_t device; /* that of DLPack, of a table */
  struct buffer buffer; /* if it has an owner, it is to be released */
};

/* letter returns the type of a letter of the module struct, and of NumPy's types, -1 if there is none. */
static int letter(char c) {
  switch (c) {
    case 'e': return MSCCLPP_FLOAT16;
    case 'f': return MSCCLPP_FLOAT32;
    case 'd': return MSCCLPP_FLOAT64;
    case 'b': return MSCCLPP_INT8;
    case 'B': return MSCCLPP_UINT8;
    case 'i': return MSCCLPP_INT32;
    case 'I': return MSCCLPP_UINT32;
    case 'l': case 'q': return MSCCLPP_INT64;
    case 'L': case 'Q': return MSCCLPP_UINT64;
    default: return -1;
  }
}

static int by_buffer(struct array *a, object *o) {
  if (py.buffer(o, &a->buffer, WRITABLE | FORMAT | IN_C_ORDER) != 0) {
    a->buffer.owner = NULL;
    return 0;
  }
  const char *format = a->buffer.format;
  a->type = format == NULL ? MSCCLPP_UINT8 : format[0] != 0 && format[1] == 0 ? letter(format[0]) : -1;
  if (a->type < 0 || a->buffer.itemsize <= 0) return 0;
  a->at = a->buffer.at;
  a->count = (size_t)(a->buffer.bytes / a->buffer.itemsize);
  return 1;
}

static int dlpack_type(const struct tensor *t) {
  if (t->lanes != 1) return -1;
  switch (t->code << 8 | t->bits) {
    case 0x008: return MSCCLPP_INT8;
    case 0x020: return MSCCLPP_INT32;
    case 0x040: return MSCCLPP_INT64;
    case 0x108: return MSCCLPP_UINT8;
    case 0x120: return MSCCLPP_UINT32;
    case 0x140: return MSCCLPP_UINT64;
    case 0x210: return MSCCLPP_FLOAT16;
    case 0x220: return MSCCLPP_FLOAT32;
    case 0x240: return MSCCLPP_FLOAT64;
    case 0x410: return MSCCLPP_BFLOAT16;
    case 0xa08: return MSCCLPP_FLOAT8_E4M3;
    case 0xc08: return MSCCLPP_FLOAT8_E5M2;
    default: return -1;
  }
}

/* Of tensors whose elements are negated when they are read, those of one element have no gaps by which they are known. */
static int negated(object *o) {
  object *method = py.attribute(o, names.is_neg), *answer = method == NULL ? NULL : py.call(method);
  const int yes = answer == NULL || py.truth(answer) != 0;
  if (method != NULL) py.drop(method);
  if (answer != NULL) py.drop(answer);
  return yes;
}

static int by_table(struct array *a, object *o, int32_t gpu) {
  struct tensor t;
  if (a->known->table->tensor(o, &t) != 0) return 0;
  if (gpu < 0 ? t.device != ON_HOST : (t.device != ON_CUDA && t.device != ON_ROCM) || t.number != gpu) return 0;
  a->type = dlpack_type(&t);
  if (a->type < 0 || t.dimensions < 0) return 0;
  int64_t count = 1, dense = 1;
  for (int i = t.dimensions - 1; i >= 0; i--) {
    if (t.shape[i] != 1 && t.strides != NULL && t.strides[i] != count) dense = 0;
    count *= t.shape[i];
  }
  if (count < 0 || (!dense && count != 0) || (count < 2 && negated(o))) return 0;
  a->at = (char *)t.data + t.offset;
  a->count = (size_t)count;
  a->device = t.device;
  return 1;
}

/* part returns an attribute of an object, NULL also for an attribute of NULL. It drops the object if it is one's own. */
static object *part(object *o, object *name, int own) {
  object *value = o == NULL ? NULL : py.attribute(o, name);
  if (own && o != NULL) py.drop(o);
  return value;
}

/* whole gives a number to the caller, and drops its object: 0 if it is none. */
static int whole(object *o, long *number) {
  if (o == NULL) return 0;
  *number = py.number(o);
  py.drop(o);
  return *number != -1 || py.raised() == NULL;
}

static int by_attributes(struct array *a, object *o, int32_t gpu) {
  long device, count;
  ssize_t n;
  object *dense = part(part(o, names.flags, 0), names.c_contiguous, 1);
  const int is_dense = dense != NULL && py.truth(dense) == 1;
  if (dense != NULL) py.drop(dense);
  if (!is_dense || gpu < 0) return 0;

  object *code = part(part(o, names.dtype, 0), names.code, 1);
  const char *text = code == NULL ? NULL : py.text(code, &n);
  a->type = text != NULL && n == 1 ? letter(*text) : -1;
  if (code != NULL) py.drop(code);
  if (a->type < 0 || !whole(part(o, names.size, 0), &count) || count < 0) return 0;

  object *data = part(o, names.data, 0), *at = part(data, names.ptr, 0);
  const int known_device = at != NULL && whole(part(data, names.device_id, 0), &device);
  a->at = at == NULL ? NULL : py.pointer(at);
  if (at != NULL) py.drop(at);
  if (data != NULL) py.drop(data);
  a->count = (size_t)count;
  return known_device && device == gpu && py.raised() == NULL;
}

static int take(struct array *a, object *o, int32_t gpu) {
  a->buffer.owner = NULL;
  a->known = knowledge(o);
  if (a->known == NULL) return 0;
  switch (a->known->how) {
    case MSCCLPP_PYTHON_BUFFER: return gpu < 0 && by_buffer(a, o);
    case MSCCLPP_PYTHON_TABLE: return by_table(a, o, gpu);
    default: return by_attributes(a, o, gpu);
  }
}

/* stream_of finds the stream of a call on a GPU: that which its caller names, else the current one of the package of its arrays. */
static int stream_of(const struct array *a, object *named, int32_t gpu, void **stream) {
  const struct known *k = a->known;
  if (named == py.none && k->how == MSCCLPP_PYTHON_TABLE) return k->table->stream(a->device, gpu, stream) == 0;
  object *number;
  if (named == py.none) {
    number = part(py.call(k->way), names.ptr, 1);
  } else if (k->how != MSCCLPP_PYTHON_TABLE) {
    return 0; /* it has to wait for the current one */
  } else {
    object *type = py.type(named);
    const int is_number = (py.flags(type) & is_whole) != 0;
    py.drop(type);
    if (is_number) {
      *stream = py.pointer(named);
      return py.raised() == NULL;
    }
    number = py.attribute(named, names.cuda_stream);
  }
  if (number == NULL) return 0;
  *stream = py.pointer(number);
  py.drop(number);
  return py.raised() == NULL;
}

struct caller {
  mscclpp_comm_t comm;
  int32_t ranks, gpu;
};

/* fits gives the count of a call; 0 if its arrays have different ones. */
static int fits(const struct caller *c, long call, const struct array *a, const struct array *b, size_t *count) {
  const size_t n = (size_t)c->ranks;
  *count = a->count;
  switch (call) {
    case MSCCLPP_PYTHON_REDUCE_SCATTER: *count = b->count; return a->count == b->count * n;
    case MSCCLPP_PYTHON_ALL_GATHER: return b->count == a->count * n;
    case MSCCLPP_PYTHON_ALL_TO_ALL: *count = a->count / n; return a->count == b->count && *count * n == a->count;
    default: return a->count == b->count;
  }
}

static mscclpp_result_t perform(const struct caller *c, long call, void *a, void *b, size_t n, int type, long op, long root,
                                const mscclpp_call_options_t *options) {
  switch (call) {
    case MSCCLPP_PYTHON_ALL_REDUCE: return mscclpp_all_reduce(c->comm, a, b, n, type, (mscclpp_op_t)op, options);
    case MSCCLPP_PYTHON_REDUCE: return mscclpp_reduce(c->comm, a, b, n, type, (mscclpp_op_t)op, (int32_t)root, options);
    case MSCCLPP_PYTHON_REDUCE_SCATTER: return mscclpp_reduce_scatter(c->comm, a, b, n, type, (mscclpp_op_t)op, options);
    case MSCCLPP_PYTHON_ALL_GATHER: return mscclpp_all_gather(c->comm, a, b, n, type, options);
    case MSCCLPP_PYTHON_BROADCAST: return mscclpp_broadcast(c->comm, a, b, n, type, (int32_t)root, options);
    case MSCCLPP_PYTHON_ALL_TO_ALL: return mscclpp_all_to_all(c->comm, a, b, n, type, options);
    case MSCCLPP_PYTHON_SEND: return mscclpp_send(c->comm, a, n, type, (int32_t)root, options);
    default: return mscclpp_recv(c->comm, b, n, type, (int32_t)root, options);
  }
}

/* below gives a number to the caller; 0 if it is none from 0 on and below a limit. */
static int below(object *o, long limit, long *number) {
  object *type = py.type(o);
  const int is_number = (py.flags(type) & is_whole) != 0;
  py.drop(type);
  if (!is_number) return 0;
  *number = py.number(o);
  return *number >= 0 && *number < limit;
}

static long attempt(const struct caller *c, object *const *arguments) {
  struct array a, b;
  long call, op, root, result = -1;
  size_t count;
  mscclpp_call_options_t options = MSCCLPP_CALL_OPTIONS_INIT;
  if (!below(arguments[0], MSCCLPP_PYTHON_RECV + 1, &call) || !below(arguments[3], MSCCLPP_PREMUL_SUM, &op)) return -1;
  if (!below(arguments[4], c->ranks, &root) || (c->gpu < 0 && arguments[5] != py.none)) return -1;
  const int two = arguments[1] != arguments[2];
  b.buffer.owner = NULL;
  if (take(&a, arguments[1], c->gpu) && (!two || take(&b, arguments[2], c->gpu))) {
    const struct array *to = two ? &b : &a;
    if (to->type == a.type && fits(c, call, &a, to, &count) &&
        (c->gpu < 0 || (to->known == a.known && stream_of(&a, arguments[5], c->gpu, &options.stream)))) {
      void *thread = py.unlock();
      result = perform(c, call, a.at, to->at, count, a.type, op, root, c->gpu < 0 ? NULL : &options);
      py.lock(thread);
    }
  }
  if (a.buffer.owner != NULL) py.release(&a.buffer);
  if (b.buffer.owner != NULL) py.release(&b.buffer);
  return result;
}

static object *caller(object *self, object *const *arguments, ssize_t n) {
  struct caller c;
  memcpy(&c, py.content(self), sizeof c);
  const long result = n == 6 ? attempt(&c, arguments) : -1;
  if (result < 0 && py.raised() != NULL) { /* the package finds what is wrong with an array; Ctrl-C is an exception of its own */
    if (!py.matches(*py.exception)) return NULL;
    py.forget();
  }
  return py.from_number(result);
}

void *mscclpp_python_caller(mscclpp_comm_t comm, int32_t ranks, int32_t gpu) {
  static struct method method = {"caller", caller, FASTCALL, NULL};
  struct caller c = {comm, ranks, gpu};
  if (!found()) return NULL;
  object *self = py.bytes((const char *)&c, sizeof c);
  if (self == NULL) return NULL;
  object *function = py.function(&method, self, NULL);
  py.drop(self);
  return function;
}
