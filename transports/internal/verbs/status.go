package verbs

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// statusTexts say what a completion's status means, and what usually is the cause.
var statusTexts = []string{
	0:  "success",
	1:  "local length error",
	2:  "local queue pair operation error",
	3:  "local EE context operation error",
	4:  "local protection error: memory that is not registered, or no longer",
	5:  "flushed: an earlier request has failed",
	6:  "memory window bind error",
	7:  "bad response",
	8:  "local access error",
	9:  "remote invalid request: the peer's adapter does not do this",
	10: "remote access error: the peer's memory is not registered, or no longer",
	11: "remote operation error",
	12: "retries exceeded: no answer from the peer; it has ended, its port is down, or the network drops packets",
	13: "RNR retries exceeded: the peer has nowhere to receive",
	14: "local RDD violation",
	15: "remote invalid RD request",
	16: "remote aborted",
	17: "invalid EE context number",
	18: "invalid EE context state",
	19: "fatal: the adapter has failed",
	20: "response timeout",
	21: "general error",
}

func statusText(status uint32) string {
	if int(status) < len(statusTexts) {
		return statusTexts[status]
	}
	return "unknown"
}

// statusError is the cause of death of a connection. A fault of the adapter itself is not
// the peer's.
func statusError(d *adapter, what string, c completion) error {
	class := framework.ErrPeer
	switch c.status {
	case 1, 2, 3, 4, 6, 8, 14, 17, 18, 19:
		class = framework.ErrUnavailable
	}
	return fmt.Errorf("%w: device %s port %d: %s ended with status %d (%s), vendor code %#x", class, d.name, d.port, what, c.status, statusText(c.status), c.vendor)
}
