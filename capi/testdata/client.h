/* What the parts of the test client share. */
#include <inttypes.h>
#include <mscclpp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* OK demands success, REFUSES a code and a part of the text. */
#define OK(call) expect(__FILE__, __LINE__, #call, (call), MSCCLPP_SUCCESS, "")
#define REFUSES(call, code, part) expect(__FILE__, __LINE__, #call, (call), (code), (part))
#define TRUE(condition) demand(__FILE__, __LINE__, #condition, (condition))

void expect(const char *file, int line, const char *call, mscclpp_result_t got, mscclpp_result_t want, const char *part);
void demand(const char *file, int line, const char *condition, int holds);

void handles(void);
void versions(void);
void forks(void);
void threads(void);
void collectives(void);
void aborts(void);
void channels(void);
void device(void);
void proxies(void);
void plans(void);
void executors(void);
void registered(void);
void traced(void);
void spinning(void);
void repeated(void);
void interrupted(void);
void kernels(void);
void rows(void);
void makes_ids(void);
void joins_by_id(void);
