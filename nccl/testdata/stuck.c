/* A driver whose cuEventElapsedTime does not return while it is held; all else is the emulated driver's. */
#include <dlfcn.h>
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int held, inside;

int cuEventElapsedTime(float* milliseconds, void* from, void* to) {
  pthread_mutex_lock(&lock);
  inside++;
  pthread_cond_broadcast(&changed);
  while (held) pthread_cond_wait(&changed, &lock);
  inside--;
  pthread_mutex_unlock(&lock);
  return ((int (*)(float*, void*, void*))dlsym(RTLD_NEXT, "cuEventElapsedTime"))(milliseconds, from, to);
}

void stuck_hold(int hold) {
  pthread_mutex_lock(&lock);
  held = hold;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

/* stuck_wait waits until a call is inside. */
void stuck_wait(void) {
  pthread_mutex_lock(&lock);
  while (!inside) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}
