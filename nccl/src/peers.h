/* The processes of a communicator's ranks, as they tell each other when it is made. */
#pragma once

#include <netinet/in.h>
#include <stdint.h>

#include "comm.h"
#include "sockets.h"

enum { PEER_TOKEN = 16, PEER_ADDRESS = ADDRESS_BYTES };

struct peer {
  uint64_t id;                   /* of the communicator; that of rank 0 counts */
  uint64_t host;                 /* the same for processes of one host, as libmscclpp counts them */
  uint8_t token[PEER_TOKEN];     /* of its RAS service: a password, and what tells processes apart */
  uint8_t address[PEER_ADDRESS]; /* where that answers other processes, as in ids; zeros: it has none */
  uint8_t zero[2];
  int32_t pid;
};

/* peers_exchange fills comm->peers, and makes the communicator known. All ranks call it when they have met, whatever their variables say. */
ncclResult_t peers_exchange(ncclComm_t comm);

/* peers_this_host is the host of this process. */
uint64_t peers_this_host(void);

/* peers_hosts returns on how many hosts the ranks are. */
int peers_hosts(ncclComm_t comm);

/* peer_host writes the address of a process as text; "unknown" without one. */
const char* peer_host(const struct peer* p, char* text, socklen_t size);
