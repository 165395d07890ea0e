package cli

import (
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// column describes a column of a table.
type column struct {
	title string
	right bool // numbers stand to the right
	// least is how narrow the column may be made when the terminal is too narrow for the table; 0
	// keeps it whole.
	least int
}

const columnGap = 2

// table is rows of text with a line of titles. The last column is not padded.
type table struct {
	columns []column
	rows    [][]string
}

// add appends a row, one cell a column. Cells may hold anything: they are made harmless.
func (t *table) add(cells ...string) {
	row := make([]string, len(t.columns))
	for i := range row {
		row[i] = harmless(cells[i])
		if row[i] == "" {
			row[i] = "-"
		}
	}
	t.rows = append(t.rows, row)
}

// write writes the table into at most limit columns, if limit is not 0 and the columns that may be
// made narrower allow it.
func (t *table) write(w io.Writer, limit int) error {
	widths := t.widths(limit)
	titles := make([]string, len(t.columns))
	for i, c := range t.columns {
		titles[i] = c.title
	}
	var b strings.Builder
	t.writeRow(&b, titles, widths)
	for _, row := range t.rows {
		t.writeRow(&b, row, widths)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// widths gives the width of each column.
func (t *table) widths(limit int) []int {
	widths := make([]int, len(t.columns))
	total := columnGap * (len(widths) - 1)
	for i, c := range t.columns {
		widths[i] = columns(c.title)
		for _, row := range t.rows {
			widths[i] = max(widths[i], columns(row[i]))
		}
		total += widths[i]
	}
	for limit > 0 && total > limit {
		widest := t.widestShrinkable(widths)
		if widest < 0 {
			break
		}
		widths[widest]--
		total--
	}
	return widths
}

// widestShrinkable is the column that gives up space next, -1 when none can.
func (t *table) widestShrinkable(widths []int) int {
	widest := -1
	for i, c := range t.columns {
		if c.least > 0 && widths[i] > max(c.least, columns(c.title)) && (widest < 0 || widths[i] > widths[widest]) {
			widest = i
		}
	}
	return widest
}

func (t *table) writeRow(b *strings.Builder, row []string, widths []int) {
	var line strings.Builder
	for i, cell := range row {
		cell = shorten(cell, widths[i])
		pad := strings.Repeat(" ", widths[i]-columns(cell))
		if t.columns[i].right {
			line.WriteString(pad + cell)
		} else {
			line.WriteString(cell + pad)
		}
		line.WriteString(strings.Repeat(" ", columnGap))
	}
	b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
}

// terminalWidth is the number of columns of the terminal that w is, 0 when it is none: what is
// piped into a file or a program is never cut.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	return int(size.Col)
}
