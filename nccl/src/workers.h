/* Threads that are kept for groups, whose parts have to go on side by side. */
#pragma once

struct worker;

/* worker_start has a thread call f(with), and returns it; NULL: none is to be had. */
struct worker* worker_start(void* (*f)(void*), void* with);

/* worker_wait waits until that has returned. */
void worker_wait(struct worker* w);
