// Command pingpong sends a message back and forth between two ranks over a port
// channel, driven by the host: no kernel runs, and a proxy moves the data.
//
//	mscclpp-run -n 2 pingpong [-rounds N]
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"time"

	"github.com/mscclpp-go/mscclpp"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

const size = 4096

func main() {
	rounds := flag.Int("rounds", 250, "how often the message goes there and back")
	flag.Parse()
	ctx := context.Background()
	job, err := mscclpp.Init(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer job.Close()
	if err := play(ctx, job, *rounds); err != nil {
		log.Fatal(err)
	}
}

func play(ctx context.Context, job *mscclpp.Job, rounds int) error {
	if job.Size() != 2 {
		return fmt.Errorf("%d ranks: this takes two", job.Size())
	}
	// One memory that this rank sends from, and one that its peer may write.
	out, err := job.World.Alloc(size)
	if err != nil {
		return err
	}
	defer out.Close()
	in, err := job.World.Alloc(size)
	if err != nil {
		return err
	}
	defer in.Close()
	channel, err := job.World.PortChannel(ctx, 1-job.Rank(), out, in)
	if err != nil {
		return err
	}
	defer channel.Close()

	start := time.Now()
	for round := range rounds {
		if err := exchange(ctx, job.Rank(), channel, out, in, byte(round)); err != nil {
			return err
		}
	}
	if job.Rank() == 0 {
		fmt.Printf("%d bytes there and back: %v\n", size, time.Since(start)/time.Duration(max(rounds, 1)))
	}
	return job.World.Barrier(ctx) // neither leaves while the other still waits
}

// exchange is one round: rank 0 serves, rank 1 returns.
func exchange(ctx context.Context, rank int, channel *comm.PortChannel, out, in *comm.Memory, round byte) error {
	if rank == 1 {
		if err := receive(ctx, channel, in, round); err != nil {
			return err
		}
	}
	device.Bytes(out)[size-1] = round
	if err := channel.PutWithSignal(0, 0, size); err != nil {
		return err
	}
	// The source may be written again once the put is done.
	if err := channel.Flush(ctx); err != nil || rank == 1 {
		return err
	}
	return receive(ctx, channel, in, round)
}

func receive(ctx context.Context, channel *comm.PortChannel, in *comm.Memory, round byte) error {
	if err := channel.Wait(ctx); err != nil {
		return err
	}
	if got := device.Bytes(in)[size-1]; got != round {
		return fmt.Errorf("round %d: received %d", round, got)
	}
	return nil
}
