package traces

import (
	"fmt"
	"time"
)

// Counted is 1 call, or 2 calls.
func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Have is rank 3 has, or ranks 0-2, 5 have.
func Have(ranks []int) string { return verb(ranks, " has", " have") }

func verb(ranks []int, one, many string) string {
	if len(ranks) == 1 {
		return RankList(ranks) + one
	}
	return RankList(ranks) + many
}

// RankList is rank 3, or ranks 0-2, 5.
func RankList(ranks []int) string {
	text := "rank "
	if len(ranks) != 1 {
		text = "ranks "
	}
	for i := 0; i < len(ranks); {
		n := i
		for n+1 < len(ranks) && ranks[n+1] == ranks[n]+1 {
			n++
		}
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprint(ranks[i])
		if n > i {
			text += fmt.Sprintf("-%d", ranks[n])
		}
		i = n + 1
	}
	return text
}

// Size is a number of bytes as people read it.
func Size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	return fmt.Sprintf("%.4g %s", f, units[i])
}

// Took is a duration to three digits.
func Took(ns int64) string {
	d := time.Duration(ns)
	for unit := time.Duration(1); unit < time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Second).String()
}
