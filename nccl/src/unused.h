/* What is said of NCCL's variables that change nothing here. */
#pragma once

/* say_unused looks at all variables, and names those. */
void say_unused(void);
