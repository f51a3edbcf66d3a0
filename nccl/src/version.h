/* Which version of NCCL this library says that it is, and which of this project it is. */
#pragma once

/* version_print prints the line by which people see what is in use. */
void version_print(int rank, int device);

/* library_version is the version of this project, which libmscclpp has to have as well. */
const char* library_version(void);
