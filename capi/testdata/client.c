/* A client of the C library, for tests: its argument says which part runs. */
#include "client.h"

void expect(const char *file, int line, const char *call, mscclpp_result_t got, mscclpp_result_t want, const char *part) {
  if (got == want && (got == MSCCLPP_SUCCESS || strstr(mscclpp_last_error(), part) != NULL)) return;
  fprintf(stderr, "%s:%d: %s: %s: %s; expected %s with \"%s\"\n", file, line, call, mscclpp_result_name(got),
          got == MSCCLPP_SUCCESS ? "" : mscclpp_last_error(), mscclpp_result_name(want), part);
  exit(EXIT_FAILURE);
}

void demand(const char *file, int line, const char *condition, int holds) {
  if (holds) return;
  fprintf(stderr, "%s:%d: %s does not hold\n", file, line, condition);
  exit(EXIT_FAILURE);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } parts[] = {{"handles", handles}, {"versions", versions},       {"forks", forks},
               {"threads", threads}, {"collectives", collectives}, {"aborts", aborts},
               {"channels", channels}, {"device", device},   {"proxies", proxies},
               {"plans", plans}, {"executors", executors}, {"registered", registered}, {"traced", traced}, {"spinning", spinning},
               {"repeated", repeated}, {"interrupted", interrupted}, {"kernels", kernels}, {"rows", rows},
               {"makes_ids", makes_ids}, {"joins_by_id", joins_by_id}};
  size_t i;
  for (i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    if (argc == 2 && strcmp(argv[1], parts[i].name) == 0) {
      parts[i].run();
      printf("%s is done\n", argv[1]);
      return EXIT_SUCCESS;
    }
  }
  fprintf(stderr, "client: expected the name of a part\n");
  return 2;
}
