/* ras_socket is a new socket that a forked child gives up; ras_accept takes a connection as such a one. They are -1 where
 * there is none. ras_close ends it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

int ras_socket(int family);
int ras_accept(int listener);
void ras_close(int fd);

/* ras_now is the time in milliseconds. */
int64_t ras_now(void);

/* ras_move sends or receives n bytes, until a time. It returns 1, 0 when the time is over, -1 when the other side has gone. */
int ras_move(int fd, void* bytes, size_t n, int sends, int64_t until);
