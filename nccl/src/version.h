/* Which version of NCCL this library says that it is, and which of this project it is. */
#pragma once

#include <stddef.h>

/* version_print prints the line by which people see what is in use. */
void version_print(int rank, int device);

/* version_text writes that line, version_number the number alone, as in 2.28.9. */
void version_text(char* text, size_t size);
void version_number(char* text, size_t size);

/* library_version is the version of this project, which libmscclpp has to have as well. */
const char* library_version(void);
