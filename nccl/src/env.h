/* Variables of NCCL: the environment, then NCCL_CONF_FILE or ~/.nccl.conf, then /etc/nccl.conf. */
#pragma once

/* setting returns the value of a variable, or NULL. It lives as long as the process. */
const char* setting(const char* name);

/* setting_number returns a whole number, or otherwise if there is none or it is not one. */
long setting_number(const char* name, long otherwise);

/* each_setting calls f for every variable that begins with NCCL_. */
void each_setting(void (*f)(const char* name, const char* value, void* with), void* with);
