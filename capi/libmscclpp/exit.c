/* What the library says to other ranks when the program exits and has not destroyed its communicators: a
 * goodbye, without which they would take the end of the process for its death. Nothing here enters Go. */
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "internal.h"

/* The table of internal/lastwords, which has the meaning of the states. */
enum { IDLE = 1, WRITING = 2, SAYING = 3, SAID = 4 };

struct slot {
  _Atomic uint32_t state;
  int32_t fd;
  uint32_t length, unused;
  unsigned char text[48];
};
_Static_assert(sizeof(struct slot) == 64, "the layout of internal/lastwords");

static struct slot *slots;
static size_t count;

void lastwords_are(void *at, size_t n) {
  slots = at;
  count = n;
}

/* A program that exits with another status has failed, and the others learn of it as of a death. One that is
 * killed, or ends by _exit, comes by neither function. */
static int status = -1;

static void note_status(int with, void *unused) {
  (void)unused;
  status = with;
}

__attribute__((constructor)) static void watch_exit(void) { on_exit(note_status, NULL); }

/* take has this function alone write to a connection, behind a message that is being written. */
static int take(struct slot *s, const struct timespec *until) {
  const struct timespec pause = {0, 200000};
  for (;;) {
    uint32_t state = atomic_load(&s->state);
    struct timespec now;
    if (state != IDLE && state != WRITING) return 0; /* most are free, and stay untouched */
    state = IDLE;
    if (atomic_compare_exchange_strong(&s->state, &state, SAYING)) return 1;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec > until->tv_sec || (now.tv_sec == until->tv_sec && now.tv_nsec > until->tv_nsec)) return 0;
    nanosleep(&pause, NULL);
  }
}

/* It runs behind the program's exit handlers, which may still use communicators. */
__attribute__((destructor)) static void say_goodbye(void) {
  struct timespec until;
  if (slots == NULL || status != 0 || !usable()) return;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += 200000000;
  if (until.tv_nsec >= 1000000000) {
    until.tv_sec++;
    until.tv_nsec -= 1000000000;
  }
  for (size_t i = 0; i < count; i++) {
    struct slot *s = &slots[i];
    if (!take(s, &until)) continue;
    while (send(s->fd, s->text, s->length, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EINTR) continue;
    atomic_store(&s->state, SAID);
  }
}
