package lanes

import (
	"context"
)

// Others calls f for every other rank: whom to send to, and whom to receive from.
func (l *Lanes) Others(f func(to, from int) error) error {
	n, rank := l.Comm.Size(), l.Comm.Rank()
	for d := 1; d < n; d++ {
		if err := f((rank+d)%n, (rank-d+n)%n); err != nil {
			return err
		}
	}
	return nil
}

// SendAll posts one piece of what each other rank is to get. Empty ones are not sent:
// both ends know.
func (l *Lanes) SendAll(ctx context.Context, piece func(to int) []byte) error {
	return l.Others(func(to, _ int) error {
		if b := piece(to); len(b) > 0 {
			return l.Post(ctx, to, b)
		}
		return nil
	})
}

// TakeAll receives one piece from each other rank to where it belongs.
func (l *Lanes) TakeAll(ctx context.Context, place func(from int) []byte) error {
	return l.Others(func(_, from int) error {
		to := place(from)
		if len(to) == 0 {
			return nil
		}
		return l.Take(ctx, from, uint64(len(to)), func(b []byte) { copy(to, b) })
	})
}
