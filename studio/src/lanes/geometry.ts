/** The sizes of the lanes, in pixels. */

export const TOP = 28;

export const LANE = 54;

export const PAD = 26;

export const FOOT = 44;

export const MIN_BAR = 14;

export const MANY = 240;
