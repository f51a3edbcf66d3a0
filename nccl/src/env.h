/* Variables: the environment, then NCCL_CONF_FILE or ~/.nccl.conf, then /etc/nccl.conf. This file alone reads the environment, which a
 * process with rights that its user has not, as by set-uid, passes over: variables name libraries that are loaded, and files. variables.c
 * lists them. */
#pragma once

/* setting returns the value of a variable, or NULL. It lives as long as the process. */
const char* setting(const char* name);

/* setting_is reports whether a variable has a value. */
int setting_is(const char* name, const char* value);

/* variable returns the value of a variable that files have not, or NULL. */
const char* variable(const char* name);

/* configuration_file reports whether there is a file of the configuration: of the job, the user or the system. */
int configuration_file(void);

/* setting_number returns a whole number, or otherwise if there is none or it is not one. */
long setting_number(const char* name, long otherwise);

/* setting_file_missing returns the file that NCCL_CONF_FILE names if that cannot be read, else NULL. */
const char* setting_file_missing(void);

/* each_setting calls f for every variable that may be one of this library. */
void each_setting(void (*f)(const char* name, const char* value, void* with), void* with);
