/* The variables that this library knows. */
#pragma once

/* say_variables names those that are set: at level INFO what each is for, and as a warning those whose user expects something
 * else to happen. */
void say_variables(void);
