/* What the runtime that comes with libmscclpp needs of the process. It ends the process where it does not get that. */
#pragma once

/* room_missing says what this process lacks for it, or returns NULL. */
const char* room_missing(void);
