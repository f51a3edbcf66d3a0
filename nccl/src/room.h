/* The limits of a process within which the runtime of libmscclpp can start. It ends the process where it cannot. */
#pragma once

/* room_missing says what this process lacks for it, or returns NULL. */
const char* room_missing(void);
