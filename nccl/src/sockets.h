/* Sockets of the meeting place of ids and of the RAS service, which a forked child gives up, and addresses in the layout of ids. */
#pragma once

#include <netdb.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { ADDRESS_BYTES = 18 }; /* 16 of IPv6 (IPv4 mapped), and the port, big-endian */

/* sockets_new is a new socket, and sockets_accept a connection. They are -1 where there is none. sockets_close ends one. */
int sockets_new(int family);
int sockets_accept(int listener);
void sockets_close(int fd);

/* sockets_listen listens at an address, and says in it which port that is; shared: at one with other processes. It returns -1 with errno. */
int sockets_listen(struct sockaddr_storage* at, int shared);

/* sockets_now is the time in milliseconds. */
int64_t sockets_now(void);

/* sockets_move sends or receives n bytes, until a time. It returns 1, 0 when the time is over, -1 when the other side has gone. */
int sockets_move(int fd, void* bytes, size_t n, int sends, int64_t until);

/* sockets_equal compares passwords, in constant time. */
int sockets_equal(const uint8_t* a, const uint8_t* b, size_t n);

/* address_put and address_get convert; address_get returns the size of what it writes. */
void address_put(uint8_t out[ADDRESS_BYTES], const struct sockaddr_storage* a);
socklen_t address_get(const uint8_t in[ADDRESS_BYTES], struct sockaddr_storage* out);

/* address_find resolves HOST:PORT, with brackets around IPv6; to be freed. NULL: *why says what is wrong. */
#define ADDRESS_FORM "expected <ipv4>:<port>, [<ipv6>]:<port> or <host>:<port>"
struct addrinfo* address_find(const char* text, const char** why);

/* Around a fork: no socket is between its making and the list, and the child closes those of the list. */
void sockets_before_fork(void);
void sockets_in_parent(void);
void sockets_in_child(void);
