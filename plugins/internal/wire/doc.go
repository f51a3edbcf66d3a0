// Package wire is both ends of the process boundary: Server puts a framework.Transport behind the
// gRPC service, Client turns the service into a framework.Transport again. The messages are
// described in docs/plugin-protocol.md; this package holds the conversions, the table of error
// classes, and the custody of descriptors.
package wire

import (
	"math"

	"google.golang.org/grpc"

	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

// MaxMessage is the size of the largest gRPC message, both ways. An Attach of 1,024
// peers whose parcels hold 32 KiB each still fits.
const MaxMessage = 64 << 20

// ImagePiece is the size of the pieces in which an image travels. The protocol allows
// 1 MiB; with the frame around it this fits the largest but one of the buffers that
// gRPC keeps, and the largest would be cleared by every process that starts.
const ImagePiece = 31 << 10

// MaxImage limits what a client assembles from pieces.
const MaxImage = 1 << 30

// i32 narrows an int; the range of ranks, slots and counts is far smaller, and
// what exceeds it becomes a value that the receiver rejects.
func i32(n int) int32 {
	return int32(max(math.MinInt32, min(n, math.MaxInt32)))
}

// Register adds the service to a gRPC server.
func Register(s *grpc.Server, server *Server) { pb.RegisterTransportServiceServer(s, server) }
