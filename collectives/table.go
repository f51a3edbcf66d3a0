package collectives

import "fmt"

// UseTable replaces the rows of Options.Table, which come before the built-in table.
// All ranks call it with the same rows and between the same calls. It is meant for
// programs that measure, and for rows with algorithms that the program has registered;
// other programs configure the table. A row with an algorithm that nobody has is a
// RowError.
func (c *Comm) UseTable(rows []Row) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkRows(rows); err != nil {
		return fmt.Errorf("collectives: %w", err)
	}
	c.table = rows
	c.choices.reset()
	return nil
}
