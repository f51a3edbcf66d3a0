package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/mscclpp-go/mscclpp"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// point is one measurement: so many messages of a size.
type point struct{ bytes, count int }

func (p point) String() string { return fmt.Sprintf("%d:%d", p.bytes, p.count) }

func parsePoint(text string) (point, error) {
	b, n, _ := strings.Cut(text, ":")
	bytes, err := strconv.Atoi(b)
	if err != nil || bytes < 1 || bytes > 1<<30 {
		return point{}, fmt.Errorf("%q: expected BYTES:COUNT, with 1 byte to 1 GiB", text)
	}
	count, err := strconv.Atoi(n)
	if err != nil || count < 1 {
		return point{}, fmt.Errorf("%q: expected BYTES:COUNT, with a count of 1 or more", text)
	}
	return point{bytes, count}, nil
}

// rank runs on both ranks of our side: put or pingpong, then the points.
func rank(ctx context.Context, out io.Writer, args []string) error {
	what := args[0]
	job, err := mscclpp.Init(ctx)
	if err != nil {
		return err
	}
	defer job.Close()
	if job.Size() != 2 {
		return fmt.Errorf("%d ranks: expected 2", job.Size())
	}
	for _, text := range args[1:] {
		p, err := parsePoint(text)
		if err != nil {
			return err
		}
		took, wrong, err := measure(ctx, job, what, p)
		if err != nil {
			return fmt.Errorf("%s of %d bytes: %w", what, p.bytes, err)
		}
		if job.Rank() == 0 {
			fmt.Fprintf(out, `{"collective":%q,"bytes":%d,"transport":"tcp","time_us":%.4f,"errors":0}`+"\n", what, p.bytes, took.Seconds()*1e6)
		}
		if wrong > 0 {
			return fmt.Errorf("%s of %d bytes: %d of them are wrong at rank 1", what, p.bytes, wrong)
		}
	}
	return nil
}

// measure makes a channel for one point, and times it after a few messages that warm
// it up.
func measure(ctx context.Context, job *mscclpp.Job, what string, p point) (took time.Duration, wrong int, err error) {
	out, err := job.World.Alloc(uint64(p.bytes))
	if err != nil {
		return 0, 0, err
	}
	defer out.Close()
	in, err := job.World.Alloc(uint64(p.bytes))
	if err != nil {
		return 0, 0, err
	}
	defer in.Close()
	ch, err := job.World.PortChannel(ctx, 1-job.Rank(), out, in)
	if err != nil {
		return 0, 0, err
	}
	defer ch.Close()
	run := puts
	if what == "pingpong" {
		run = pingpong
	}
	for at, count := range []int{p.count/8 + 2, p.count} {
		for i := range device.Bytes(out) {
			device.Bytes(out)[i] = byte(i%251 + at)
		}
		if err := job.World.Barrier(ctx); err != nil {
			return 0, 0, err
		}
		start := time.Now()
		if err := run(ctx, job.Rank(), ch, p.bytes, count); err != nil {
			return 0, 0, err
		}
		took = time.Since(start) / time.Duration(count)
		if err := job.World.Barrier(ctx); err != nil {
			return 0, 0, err
		}
		for i, b := range device.Bytes(in) {
			if job.Rank() == 1 && b != byte(i%251+at) {
				wrong++
			}
		}
	}
	if what == "pingpong" {
		took /= 2
	}
	return took, wrong, nil
}

// puts sends from rank 0; a flush in the end waits for all.
func puts(ctx context.Context, rank int, ch *comm.PortChannel, bytes, count int) error {
	if rank != 0 {
		return nil
	}
	for range count {
		if err := ch.Put(0, 0, uint64(bytes)); err != nil {
			return err
		}
	}
	return ch.Flush(ctx)
}

func pingpong(ctx context.Context, rank int, ch *comm.PortChannel, bytes, count int) error {
	for range count {
		if rank == 1 {
			if err := ch.Wait(ctx); err != nil {
				return err
			}
		}
		if err := ch.PutWithSignal(0, 0, uint64(bytes)); err != nil {
			return err
		}
		if rank == 0 {
			if err := ch.Wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
