package collectives

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// UseTable replaces the rows of Options.Table, which come before the built-in table.
// All ranks call it with the same rows and between the same calls. It is meant for
// programs that measure; other programs configure the table.
func (c *Comm) UseTable(rows []Row) error {
	for i := range rows {
		if rows[i].Blocks < 0 || rows[i].Threads < 0 {
			return fmt.Errorf("%w: row %d: %d blocks of %d threads: expected none below 0", framework.ErrInvalid, i+1, rows[i].Blocks, rows[i].Threads)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.table = rows
	c.choices.reset()
	return nil
}
